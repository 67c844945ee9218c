package admin

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
)

// Operators and clients know a contract by one name, such as fetchbox, and the engine knows its job
// types, such as fetchbox.manifest and fetchbox.task. This file translates: jobTypesOf from the
// name to the job types, contract.PublicName back. A queue belongs to one job type, so routes that
// name a queue take the name of the job type as it is.

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

// contractItems returns the contracts that this node serves, as clients know them.
func (a *API) contractItems() (all []contractItem) {
	words := map[string]map[string]bool{}
	for _, one := range a.Contracts {
		for _, jobs := range one.JobTypes {
			name := contract.PublicName(jobs.Name)
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

// StateNames returns the states of a contract that clients know, in alphabetical order; "" stands
// for all contracts.
func (a *API) StateNames(contract string) (names []string) {
	for _, item := range a.contractItems() {
		if contract == "" || contract == item.name {
			names = append(names, item.states...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// jobTypesOf returns the job types that are one contract to clients; "" means all.
func (a *API) jobTypesOf(name string) (jobs []string, err error) {
	for _, one := range a.Contracts {
		for i := range one.JobTypes {
			jobType := one.JobTypes[i].Name
			if name == "" || name == jobType || name == contract.PublicName(jobType) {
				jobs = append(jobs, jobType)
			}
		}
	}
	if len(jobs) == 0 && name != "" {
		return nil, invalid("contract must be one of " + strings.Join(a.ContractNames(), ", "))
	}
	return jobs, nil
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
