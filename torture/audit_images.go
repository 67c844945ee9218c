package main

import (
	"maps"
	"slices"
)

// fileOps are the requests about a file after its upload, those that were acknowledged and those
// that may have been carried out.
type fileOps struct{ deleted, mayBeDeleted, more, mayBeMore int }

// checkFiles checks the promises of Images alone: that each file has the picture that was sent
// (I1, I2) and was made once (I8), that its variants are there and are pictures, that a deletion
// leaves nothing, and how many jobs it has (I14).
func (a *audit) checkFiles() {
	changes := map[string]*fileOps{}
	for _, o := range a.ops {
		if o.Contract == images && o.Job != "" && o.Class != classFailed {
			if changes[o.Job] == nil {
				changes[o.Job] = &fileOps{}
			}
			changes[o.Job].add(o)
		}
	}
	byID, named := map[string]*sent{}, map[string]string{}
	for _, s := range a.sent {
		if s.contract == images && s.Job != "" {
			byID[s.Job] = s
		}
	}
	for _, id := range slices.Sorted(maps.Keys(a.final.Files)) {
		file, c := a.final.Files[id], changes[id]
		if c == nil {
			c = &fileOps{}
		}
		s := byID[id]
		if s == nil { // its upload has no answer
			s = a.sent[file.Name]
		}
		if s == nil || len(s.by) == 0 {
			a.add("I2 no phantom", "file %s, which is %s, was sent by nobody", id, file.Status)
			continue
		}
		if other := named[s.Name]; other != "" {
			a.add("I8 idempotency", "upload %s has made %s and %s", s.Name, other, id)
		}
		named[s.Name] = id
		a.checkFile(id, file, s, c)
	}
}

// add counts a request.
func (c *fileOps) add(o *op) {
	acknowledged, possible := &c.deleted, &c.mayBeDeleted
	if o.Verb == "process" {
		acknowledged, possible = &c.more, &c.mayBeMore
	}
	*possible++
	if o.Class == classOK {
		*acknowledged++
	}
}

// checkFile checks a file against its upload and the requests about it.
func (a *audit) checkFile(id string, file imageFile, s *sent, c *fileOps) {
	if file.Jobs < 1+c.more || file.Jobs > 1+c.mayBeMore {
		a.add("I14 accounting", "file %s has %d jobs that make variants, acknowledged were %d and "+
			"%d at most sent", id, file.Jobs, 1+c.more, 1+c.mayBeMore)
	}
	isDeleted := file.Status == "deleted"
	switch {
	case c.deleted > 0 && !isDeleted:
		a.add("I1 no acknowledged loss", "file %s was deleted, and is %s", id, file.Status)
	case isDeleted && c.mayBeDeleted == 0:
		a.add("I2 no phantom", "file %s is deleted, and nobody has deleted it", id)
	case isDeleted && file.IsLeft:
		a.add("I2 no phantom", "file %s is deleted, and its objects are there", id)
	case !isDeleted:
		a.checkPicture(id, file, s, c)
	}
}

// checkPicture checks the original and the variants of a file that is there.
func (a *audit) checkPicture(id string, file imageFile, s *sent, c *fileOps) {
	u, _ := readUploaded(s.Payload)
	if file.Digest != u.Digest {
		a.add("I1 no acknowledged loss", "file %s has another original than %s", id, s.Name)
	}
	status := "ready"
	if u.Broken {
		status = "failed"
	}
	if file.Status != status {
		a.add("I1 no acknowledged loss", "file %s of %s is %s, and not %s", id, s.Name, file.Status,
			status)
	}
	var wanted []int
	if !u.Broken {
		wanted = slices.Clone(pictureSizes)
	}
	if !u.Broken && c.more > 0 {
		wanted = append(wanted, moreSize)
	}
	for _, size := range wanted {
		if fault, there := file.Variants[size]; !there || fault != "" {
			a.add("I1 no acknowledged loss", "variant %d of file %s is there: %t %s", size, id,
				there, fault)
		}
	}
	for size := range file.Variants {
		if !slices.Contains(wanted, size) && (u.Broken || size != moreSize || c.mayBeMore == 0) {
			a.add("I2 no phantom", "file %s has a variant %d that nobody has asked for", id, size)
		}
	}
}
