package admin

import (
	"maps"
	"net/http"
	"slices"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
)

// contractRoutes are the routes of contracts.
func (a *API) contractRoutes() []route {
	return []route{{method: "GET", pattern: apiPrefix + "/contracts", action: "contract.list",
		handle: a.listContracts, query: httpapi.PageQuery()}}
}

// contractItem is a contract as it is listed.
type contractItem struct {
	name   string
	states []string // in the words of the contract, in alphabetical order
}

// contractItems returns the contracts that this node serves. The sorts of jobs of one contract are
// one item.
func (a *API) contractItems() (all []contractItem) {
	words := map[string]map[string]bool{}
	for _, one := range a.Contracts {
		for _, jobs := range one.Jobs {
			name := PublicContract(jobs.Name)
			if words[name] == nil {
				words[name] = map[string]bool{}
			}
			if o := a.operatorOf(jobs.Name); o.States != nil {
				for word := range o.States {
					words[name][word] = true
				}
				continue
			}
			for _, state := range jobs.Machine.States() {
				words[name][string(state)] = true
			}
		}
	}
	for name, states := range words {
		all = append(all, contractItem{name, slices.Sorted(maps.Keys(states))})
	}
	return all
}

// ContractNames returns the contracts that clients of this node know, in alphabetical order.
func (a *API) ContractNames() (names []string) {
	for _, item := range a.contractItems() {
		names = append(names, item.name)
	}
	slices.Sort(names)
	return names
}

var contractPages = newPages(nameCursor("contracts"))

// listContracts is GET /admin/v1/contracts: what the filters contract and state take (CL-005).
func (a *API) listContracts(c *httpapi.Call) error {
	limit, after, err := contractPages.Read(c)
	if err != nil {
		return err
	}
	page, next := pageOf(a.contractItems(), func(i *contractItem) string { return i.name },
		&contractPages, after, limit)
	o := newList(len(page), next, func(i int, o *strictjson.Object) {
		o.Text("contract", page[i].name)
		o.Texts("states", page[i].states)
	})
	sendObject(c, http.StatusOK, &o)
	return nil
}
