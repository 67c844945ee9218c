package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A crash point is a place in the source of the server at which a process can be made to die. The
// overlay of go build inserts a call there, as it changes the source for a seeded bug, so the
// product has no code for them.
//
//go:embed points/points.txt
var pointsText string

// crashSource is the package that the calls are of.
//
//go:embed points/crash.txt
var crashSource string

const (
	crashPackage = "internal/crash"
	// crashVariable has the point at which a server dies, and how often it passes it before that.
	crashVariable = "TORTURE_CRASH"
	// pointTimeout is how long a server may take until it comes to a point.
	pointTimeout = time.Minute
	// maxHit is how often a server passes a point at most before it dies there.
	maxHit = 3
)

// crashPoint is one of them.
type crashPoint struct {
	name, folder, about string
	before              string // the text that the point comes before
}

// readPoints reads all crash points.
func readPoints() (all []crashPoint, err error) {
	parts := strings.Split(pointsText, "\n= ")
	for _, part := range parts[1:] {
		head, before, _ := strings.Cut(part, "\n")
		place, about, _ := strings.Cut(head, ": ")
		name, folder, _ := strings.Cut(place, " ")
		p := crashPoint{name, folder, about, strings.TrimSuffix(before, "\n")}
		if name == "" || folder == "" || about == "" || before == "" {
			return nil, fmt.Errorf("a crash point cannot be read: %q", part)
		}
		all = append(all, p)
	}
	return all, nil
}

// isOf reports whether servers with a store come to a point.
func (p *crashPoint) isOf(store string) bool {
	for _, other := range []string{"sqlite", "postgres"} {
		if other != store && p.folder == "internal/store/"+other {
			return false
		}
	}
	return true
}

// file returns the file of the package that has the text of the point, by its path in the module.
func (p *crashPoint) file(root string) (found string, err error) {
	all, err := filepath.Glob(filepath.Join(root, p.folder, "*.go"))
	for _, name := range all {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		if strings.HasSuffix(name, "_test.go") || !strings.Contains(string(text), p.before) {
			continue
		}
		if found != "" {
			return "", fmt.Errorf("crash point %s stands in %s and in %s", p.name, found, name)
		}
		found = p.folder + "/" + filepath.Base(name)
	}
	if found == "" {
		return "", fmt.Errorf("crash point %s no longer applies: %s lacks its text:\n%s", p.name,
			p.folder, p.before)
	}
	return found, err
}

// withPoints returns the changes of the source by which the server has all crash points, and a
// seeded bug unless its name is empty.
func withPoints(bug string) (*seededBug, error) {
	all, err := readPoints()
	if err != nil {
		return nil, err
	}
	changes := &seededBug{name: "crash points"}
	if bug != "" {
		if changes, err = readBug(bug); err != nil {
			return nil, err
		}
	}
	changes.edits = append(changes.edits,
		edit{crashPackage + "/" + path.Base(crashPackage) + ".go", "", crashSource})
	imported := map[string]bool{}
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		file, err := p.file(root)
		if err != nil {
			return nil, err
		}
		changes.edits = append(changes.edits,
			edit{file, p.before, fmt.Sprintf("crash.Hit(%q)\n%s", p.name, p.before)})
		if !imported[file] {
			changes.edits = append(changes.edits, edit{file, "\nimport (\n",
				"\nimport (\n\t\"github.com/millrace/millrace/" + crashPackage + "\"\n"})
			imported[file] = true
		}
	}
	return changes, nil
}

// selectPoints returns the points that a plan names, of those of its store.
func (p *plan) selectPoints() (names []string, err error) {
	all, err := readPoints()
	if err != nil {
		return nil, err
	}
	wanted := strings.Split(p.Points, ",")
	for _, point := range all {
		named := slices.Contains(wanted, point.name)
		if (named || p.Points == "all") && point.isOf(p.Store) {
			names = append(names, point.name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no crash point %q", p.Store, p.Points)
	}
	return names, nil
}

// crashes returns one crash at each point that the plan names, in an order that is drawn.
func (p *plan) crashes() (all []fault) {
	names, err := p.selectPoints()
	if err != nil {
		return nil // check has refused the plan
	}
	r := rand.New(rand.NewPCG(p.Seed, 0))
	r.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	for _, name := range names {
		all = append(all, fault{Kind: faultCrash, Point: name, Hit: 1 + r.IntN(maxHit)})
	}
	return all
}

// crashAtPoints has a node die at each point of the schedule. The next start is under load already,
// so a node may also die before it is ready.
func (r *run) crashAtPoints(ctx context.Context) error {
	n := r.nodes[0]
	n.kill()
	for _, f := range r.faults {
		began := time.Now()
		if err := n.start(fmt.Sprint(crashVariable, "=", f.Point, "@", f.Hit)); err != nil {
			return err
		}
		select {
		case <-n.ended:
			if !n.wasKilled() {
				return fmt.Errorf("node %d ended before %s: %s", n.number, f.Point, n.lastLog())
			}
			r.done++
			r.log("%6.2fs to %s, passed %d times", time.Since(began).Seconds(), f.Point, f.Hit-1)
		case <-time.After(pointTimeout):
			r.violations.add("crash points", "%s was not reached", f.Point)
			n.kill()
		case <-ctx.Done():
			n.kill()
			return r.restart(ctx, n)
		}
	}
	return r.restart(ctx, n)
}

// wasKilled reports whether the process, which has ended, was ended by SIGKILL.
func (n *node) wasKilled() bool {
	status, ok := n.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// crashRounds carries out a plan with crash points once for each round, with one seed after
// another, and writes what all rounds have found.
func crashRounds(ctx context.Context, base *plan, rounds int, output io.Writer) (good bool,
	err error) {
	if base.Binary == "" {
		changes, err := withPoints(base.Bug)
		if err != nil {
			return false, err
		}
		dir, err := os.MkdirTemp("", "torture-points")
		if err != nil {
			return false, err
		}
		defer os.RemoveAll(dir)
		if base.Binary, err = build(changes, dir); err != nil {
			return false, err
		}
	}
	crashes, acknowledged, jobs, violated := 0, 0, 0, map[string]int{}
	for round := range rounds {
		p := *base
		p.Seed += uint64(round)
		if p.Dir != "" {
			p.Dir = filepath.Join(p.Dir, fmt.Sprint("round", round+1))
		}
		v, err := runPlan(ctx, &p, output)
		if err != nil {
			return false, err
		}
		crashes, acknowledged = crashes+v.Faults[faultCrash], acknowledged+v.Acknowledged
		jobs += v.Created
		for kind, n := range v.Violations {
			violated[kind] += n
		}
	}
	fmt.Fprintf(output, "%d rounds: %d crashes, %d requests and %d jobs acknowledged\n", rounds,
		crashes, acknowledged, jobs)
	for _, kind := range slices.Sorted(maps.Keys(violated)) {
		fmt.Fprintf(output, "%d × %s\n", violated[kind], kind)
	}
	return len(violated) == 0, nil
}
