package admin

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Manifests and their resources are jobs, which contract.Manifests reads for the pages of the
// console.

// Manifest is the job of a manifest. Its children are its resources.
type Manifest struct {
	JobItem
	contract.Manifest
	Waiting int // resources that are not done
	Failed  int
}

// Stored returns how many resources were stored.
func (m Manifest) Stored() int { return m.Children - m.Waiting - m.Failed }

// Resource is the job of a resource.
type Resource struct {
	JobItem
	contract.Resource
}

// Manifests returns how the manifests of this node are read; nil where no contract has any.
func (a *API) Manifests() *contract.Manifests {
	for _, c := range a.Contracts {
		if c.Manifests != nil {
			return c.Manifests
		}
	}
	return nil
}

var errNoManifest = &job.Error{Kind: job.NotFound, Op: "admin.manifest",
	Msg: "there is no such manifest"}

// ManifestFilters are the query parameters of lists of manifests, and ResourceFilters those of
// lists of the resources of one. They mean what they mean for jobs.
var (
	ManifestFilters = []string{"queue", "state"}
	ResourceFilters = []string{"state"}
)

// ListManifests returns the manifests that the query of a call asks for, the newest first, the
// cursor of the next page and, where a bound has ended this one, when the last manifest was created
// that was looked at.
func (a *API) ListManifests(c *httpapi.Call) (all []Manifest, next string, searchedTo time.Time,
	err error) {
	manifests := a.Manifests()
	if manifests == nil {
		_, _, err := newestJobPages.Read(c)
		return nil, "", searchedTo, err
	}
	found, next, err := a.listArtifacts(c, manifests.Jobs, 0, newestJobPages)
	if err != nil {
		return nil, "", searchedTo, err
	}
	full, err := a.withBodies(c.Context(), found.Jobs)
	if err != nil {
		return nil, "", searchedTo, err
	}
	items, err := a.JobItems(c.Context(), full)
	for i := range items {
		all = append(all, newManifest(manifests, items[i], full[i]))
	}
	return all, next, found.SearchedTo, err
}

// newManifest returns the manifest of a job.
func newManifest(manifests *contract.Manifests, item JobItem, j *job.Job) Manifest {
	return Manifest{JobItem: item, Manifest: manifests.Manifest(j), Waiting: j.OpenDeps,
		Failed: j.FailedDeps}
}

// listArtifacts lists the jobs of one job type, those of a parent alone where that is not 0, by the
// filters queue and state of a call.
func (a *API) listArtifacts(c *httpapi.Call, jobType string, parent int64,
	pages httpapi.Pages[int64]) (found bulk.FoundJobs, next string, err error) {
	f := bulk.JobFilter{JobTypes: []string{jobType}, Parent: parent}
	state := ""
	if err := firstError(readText(c, "queue", &f.Queue),
		readText(c, "state", &state)); err != nil {
		return found, "", err
	}
	if f.States, err = a.parseStates(state); err != nil {
		return found, "", err
	}
	limit, after, err := pages.Read(c)
	if err != nil {
		return found, "", err
	}
	found, err = a.bulk.FindJobs(c.Context(), &f, bulk.JobPage{After: after, Limit: limit,
		Oldest: parent != 0, MaxTime: maxListTime})
	if found.Next > 0 {
		next = pages.Cursor.Format(found.Next)
	}
	return found, next, err
}

// StatesOf returns the words of a job type for the states of its jobs, in alphabetical order.
func (a *API) StatesOf(jobType string) (words []string) {
	for _, one := range a.Contracts {
		for i := range one.JobTypes {
			if one.JobTypes[i].Name == jobType {
				for _, word := range a.operatorOf(jobType).Words(one.JobTypes[i].Machine) {
					words = append(words, string(word))
				}
			}
		}
	}
	slices.Sort(words)
	return words
}

// PathManifest returns the manifest of the path of a call, by the number of its job.
func (a *API) PathManifest(c *httpapi.Call) (m Manifest, err error) {
	j, err := a.PathJob(c)
	if err != nil {
		return m, err
	}
	manifests := a.Manifests()
	if manifests == nil || j.ID.JobType != manifests.Jobs {
		return m, errNoManifest
	}
	items, err := a.JobItems(c.Context(), []*job.Job{j})
	if err != nil {
		return m, err
	}
	return newManifest(manifests, items[0], j), nil
}

// ListResources returns the resources of a manifest that the query of a call asks for, in their
// order in the manifest. It pages as ListManifests does.
func (a *API) ListResources(c *httpapi.Call, m *Manifest) (all []Resource, next string,
	searchedTo time.Time, err error) {
	manifests := a.Manifests()
	found, next, err := a.listArtifacts(c, manifests.Resources, m.Number, oldestJobPages)
	if err != nil {
		return nil, "", searchedTo, err
	}
	full, err := a.withBodies(c.Context(), found.Jobs)
	if err != nil {
		return nil, "", searchedTo, err
	}
	items, err := a.JobItems(c.Context(), full)
	for i := range items {
		all = append(all, Resource{items[i], manifests.Resource(full[i])})
	}
	return all, next, found.SearchedTo, err
}

// withBodies reads jobs with their bodies, in their order. Jobs that are gone meanwhile are left
// out.
func (a *API) withBodies(ctx context.Context, jobs []*job.Job) (all []*job.Job, err error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	var numbers []int64
	for _, j := range jobs {
		numbers = append(numbers, j.Seq)
	}
	found, err := a.Engine.GetBySeqs(ctx, numbers, store.AllBodies)
	if err != nil {
		return nil, err
	}
	byNumber := map[int64]*job.Job{}
	for _, j := range found {
		byNumber[j.Seq] = j
	}
	for _, number := range numbers {
		if j := byNumber[number]; j != nil {
			all = append(all, j)
		}
	}
	return all, nil
}
