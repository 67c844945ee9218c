package main

import (
	"slices"
	"strings"
	"testing"
)

// objectScene is a job of FetchBox of which one resource is stored and another one can never be,
// and three files of Images: one as it was sent with a variant more, a broken one, and a deleted
// one.
func objectScene() *scene {
	s := newScene()
	text := string(encode(manifest{Version: "v1", Metadata: map[string]string{"of": "m1"},
		Resources: []resource{{ID: "r0", URL: "http://origin/" + kindOnce + "/m1/r0"},
			{ID: "r1", URL: "http://origin/" + kindGone + "/m1/r1"}}}))
	s.add(0, op{Contract: fetchbox, Verb: "submit", Key: "m1", Made: []made{{Job: "fetch",
		Name: "m1", Queue: fetchType, Payload: text}}})
	s.final.Fetch = map[string]fetchJob{"fetch": {Name: "m1", Status: "failed", Total: 2,
		Completed: 1, Failed: 1, Manifest: text, Stored: map[string]string{"r0": contentOf("m1",
			"r0")}, Dead: map[string]bool{"r1": true}}}
	s.final.Files = map[string]imageFile{}
	for _, u := range []uploaded{{"p1", "one", false}, {"p2", "two", true}, {"p3", "three", false}} {
		id := "file-" + u.Of
		s.add(0, op{Contract: images, Verb: "submit", Key: u.Of, Made: []made{{Job: id, Name: u.Of,
			Queue: images, Payload: string(encode(u))}}})
		s.final.Files[id] = imageFile{Name: u.Of, Status: "failed", Digest: u.Digest, Jobs: 1,
			IsLeft: true}
	}
	s.add(0, op{Contract: images, Verb: "process", Job: "file-p1"})
	s.final.Files["file-p1"] = imageFile{Name: "p1", Status: "ready", Digest: "one", Jobs: 2,
		Variants: map[int]string{16: "", 48: "", moreSize: ""}, IsLeft: true}
	s.add(0, op{Contract: images, Verb: "delete", Job: "file-p3"})
	s.final.Files["file-p3"] = imageFile{Status: "deleted", Jobs: 1}
	return s
}

// changeFetch changes the job of FetchBox at the end.
func (s *scene) changeFetch(fn func(*fetchJob)) {
	j := s.final.Fetch["fetch"]
	fn(&j)
	s.final.Fetch["fetch"] = j
}

// addDirect adds a task that a message has made, and its job as if it were stored.
func (s *scene) addDirect(kind string) {
	s.add(0, op{Contract: fetchbox, Verb: "submit", Made: []made{{Job: "direct",
		Payload: string(encode(directTask{JobID: "direct", ResourceID: "r0",
			URL: "http://origin/" + kind + "/direct/r0"}))}}})
	s.final.Fetch["direct"] = fetchJob{Status: "completed", Total: 1, Completed: 1,
		Stored: map[string]string{"r0": contentOf("direct", "r0")}}
}

// changeFile changes a file at the end.
func (s *scene) changeFile(name string, fn func(*imageFile)) {
	file := s.final.Files["file-"+name]
	fn(&file)
	s.final.Files["file-"+name] = file
}

// objectScenes are changes of objectScene with the beginnings of all violations that they cause.
var objectScenes = []struct {
	name   string
	change func(*scene)
	want   []string
}{
	{"as it should be", func(*scene) {}, nil},
	{"a job is lost", func(s *scene) { s.final.Fetch = nil }, []string{"I1"}},
	{"its manifest is lost", func(s *scene) {
		s.changeFetch(func(j *fetchJob) { j.Manifest = "" })
	}, []string{"I1"}},
	{"it has another manifest", func(s *scene) {
		s.changeFetch(func(j *fetchJob) { j.Manifest += " " })
	}, []string{"I1"}},
	{"nobody has sent it", func(s *scene) {
		s.final.Fetch["other"] = fetchJob{Name: "m2", Manifest: "{}"}
	}, []string{"I2"}},
	{"its manifest was refused", func(s *scene) { s.ops[0].Class = classFailed }, []string{"I2"}},
	{"made twice", func(s *scene) { s.final.Fetch["other"] = s.final.Fetch["fetch"] },
		[]string{"I8"}},
	{"a repeated submit has another job", func(s *scene) {
		s.add(0, op{Contract: fetchbox, Verb: "submit", Key: "m1", Made: []made{{Job: "other",
			Name: "m1"}}})
	}, []string{"I8"}},
	{"a task of a message", func(s *scene) { s.addDirect(kindPlain) }, nil},
	{"a task of a message is lost", func(s *scene) {
		s.addDirect(kindPlain)
		delete(s.final.Fetch, "direct")
	}, []string{"I1"}},
	{"a task of a message has other content", func(s *scene) {
		s.addDirect(kindPlain)
		s.final.Fetch["direct"].Stored["r0"] = ""
	}, []string{"I1"}},
	{"a task of a message that cannot be stored", func(s *scene) { s.addDirect(kindGone) },
		[]string{"I14", "I2"}},
	{"a resource is cut off", func(s *scene) { s.final.Fetch["fetch"].Stored["r0"] = "m1" },
		[]string{"I1"}},
	{"a resource that nobody has", func(s *scene) { s.final.Fetch["fetch"].Stored["r1"] = "" },
		[]string{"I2"}},
	{"no dead letter", func(s *scene) { delete(s.final.Fetch["fetch"].Dead, "r1") },
		[]string{"I14"}},
	{"no dead letter, as the streams were lost", func(s *scene) {
		delete(s.final.Fetch["fetch"].Dead, "r1")
		s.final.Wiped = s.ops[0].Invoked + 1
	}, nil},
	{"no dead letter of a job after the streams were lost", func(s *scene) {
		delete(s.final.Fetch["fetch"].Dead, "r1")
		s.final.Wiped = s.ops[0].Invoked
	}, []string{"I14"}},
	{"a dead letter of what is stored", func(s *scene) { s.final.Fetch["fetch"].Dead["r0"] = true },
		[]string{"I14"}},
	{"completed in spite of a failure", func(s *scene) {
		s.changeFetch(func(j *fetchJob) { j.Status = "completed" })
	}, []string{"I14"}},
	{"counted wrong", func(s *scene) {
		s.changeFetch(func(j *fetchJob) { j.Failed = 2 })
	}, []string{"I14"}},
	{"the canary was called", func(s *scene) { s.final.Canary = []string{"GET /"} },
		[]string{"I12"}},

	{"a file is lost", func(s *scene) { delete(s.final.Files, "file-p1") }, []string{"I1"}},
	{"its original is lost", func(s *scene) {
		s.changeFile("p1", func(f *imageFile) { f.Digest = "" })
	}, []string{"I1"}},
	{"a variant is lost", func(s *scene) { delete(s.final.Files["file-p1"].Variants, 48) },
		[]string{"I1"}},
	{"a variant is no picture", func(s *scene) { s.final.Files["file-p1"].Variants[48] = "EOF" },
		[]string{"I1"}},
	{"a variant that was asked for is lost", func(s *scene) {
		delete(s.final.Files["file-p1"].Variants, moreSize)
	}, []string{"I1"}},
	{"a variant that may have been asked for", func(s *scene) {
		delete(s.final.Files["file-p1"].Variants, moreSize)
		s.ops[4].Class = classUnknown
	}, nil},
	{"a variant that nobody has asked for", func(s *scene) {
		s.final.Files["file-p1"].Variants[7] = ""
	}, []string{"I2"}},
	{"ready in spite of a broken picture", func(s *scene) {
		s.changeFile("p2", func(f *imageFile) { f.Status = "ready" })
	}, []string{"I1"}},
	{"its upload was refused", func(s *scene) { s.ops[1].Class = classFailed }, []string{"I2"}},
	{"uploaded twice", func(s *scene) { s.final.Files["other"] = s.final.Files["file-p1"] },
		[]string{"I14", "I2", "I8"}},
	{"processed twice", func(s *scene) {
		s.changeFile("p1", func(f *imageFile) { f.Jobs = 3 })
	}, []string{"I14"}},
	{"a deletion is lost", func(s *scene) {
		s.changeFile("p3", func(f *imageFile) { f.Status = "ready" })
	}, []string{"I1"}},
	{"a deletion may be lost", func(s *scene) {
		s.ops[5].Class = classUnknown
		s.final.Files["file-p3"] = imageFile{Name: "p3", Status: "ready", Digest: "three", Jobs: 1,
			Variants: map[int]string{16: "", 48: ""}}
	}, nil},
	{"deleted by nobody", func(s *scene) { s.ops[5].Class = classFailed }, []string{"I2"}},
	{"objects of a deleted file", func(s *scene) {
		s.changeFile("p3", func(f *imageFile) { f.IsLeft = true })
	}, []string{"I2"}},
}

// TestAuditOfObjects is TestAuditOfRelay for FetchBox and Images.
func TestAuditOfObjects(t *testing.T) {
	t.Parallel()
	for _, c := range objectScenes {
		t.Run(c.name, func(t *testing.T) {
			s := objectScene()
			c.change(s)
			var v violations
			check(s.ops, &s.final, &v)
			if !slices.EqualFunc(v.kinds(), c.want, strings.HasPrefix) {
				t.Errorf("found %q, want %q", v.examples, c.want)
			}
		})
	}
}
