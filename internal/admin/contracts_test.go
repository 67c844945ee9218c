package admin_test

import (
	"slices"
	"testing"
)

// CL-005: the contracts of the node and their states, as filters take them, in pages.
func TestContracts(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		type item struct {
			Contract string
			States   []string
		}
		states := map[string][]string{}
		var names []string
		for _, i := range get[listOf[item]](t, w.world, "/admin/v1/contracts").Items {
			names = append(names, i.Contract)
			states[i.Contract] = i.States
		}
		if !slices.Equal(names, []string{"forgerun", "relay", "taskflow", "webhook"}) ||
			!slices.Contains(states["forgerun"], "RUNNING") ||
			!slices.Contains(states["taskflow"], "BLOCKED") || !slices.IsSorted(states["taskflow"]) {
			t.Errorf("got %v", states)
		}
		page := get[listOf[item]](t, w.world, "/admin/v1/contracts?limit=3")
		if len(page.Items) != 3 || page.NextCursor == nil {
			t.Fatalf("got %+v", page)
		}
		rest := get[listOf[item]](t, w.world, "/admin/v1/contracts?limit=3&cursor="+*page.NextCursor)
		if len(rest.Items) != 1 || rest.NextCursor != nil {
			t.Errorf("got %+v", rest)
		}
	})
}
