package telemetry

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// Core is the name of the registry of the process itself.
const Core = "core"

// Registries holds one registry for each contract and role. It may be used by several goroutines.
type Registries struct {
	mu         sync.Mutex
	registries map[component]*prometheus.Registry
}

// component is a part of the process with metric names of its own. The role is empty for metrics
// of a contract that belong to none of its roles.
type component struct{ contract, role string }

// NewRegistries makes Registries with the registry of the process itself, which describes the Go
// runtime and the process.
func NewRegistries() (*Registries, error) {
	r := &Registries{registries: map[component]*prometheus.Registry{}}
	core := r.For(Core, "")
	for _, c := range []prometheus.Collector{collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := core.Register(c); err != nil {
			return nil, fmt.Errorf("telemetry: %w", err)
		}
	}
	return r, nil
}

// For returns the registry of a contract's role, and makes it on first use.
func (r *Registries) For(contract, role string) *prometheus.Registry {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := component{contract, role}
	if r.registries[key] == nil {
		r.registries[key] = prometheus.NewRegistry()
	}
	return r.registries[key]
}

// find returns the registry of a contract's role, or nil if there is none.
func (r *Registries) find(contract, role string) *prometheus.Registry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.registries[component{contract, role}]
}

// components returns all components in a fixed order.
func (r *Registries) components() []component {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make([]component, 0, len(r.registries))
	for c := range r.registries {
		names = append(names, c)
	}
	slices.SortFunc(names, func(a, b component) int {
		return cmp.Or(cmp.Compare(a.contract, b.contract), cmp.Compare(a.role, b.role))
	})
	return names
}

// Describe calls each with every metric of every registry, also with those that have no value yet.
func (r *Registries) Describe(each func(contract, role string, d *prometheus.Desc)) {
	for _, c := range r.components() {
		descriptions := make(chan *prometheus.Desc)
		go func() {
			defer close(descriptions)
			r.find(c.contract, c.role).Describe(descriptions)
		}()
		for d := range descriptions {
			each(c.contract, c.role, d)
		}
	}
}

// Gather implements prometheus.Gatherer for all registries at once: each metric gets the label
// contract, and the label component where it belongs to a role. When two registries use one name
// for metrics of different types, only those of the first type are included; the others are
// available under the path of their own registry.
func (r *Registries) Gather() ([]*dto.MetricFamily, error) {
	merged := map[string]*dto.MetricFamily{}
	var errs prometheus.MultiError
	for _, c := range r.components() {
		families, err := r.find(c.contract, c.role).Gather()
		errs.Append(err)
		for _, f := range families {
			into := merged[f.GetName()]
			if into == nil {
				into = &dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type, Unit: f.Unit}
				merged[f.GetName()] = into
			}
			if into.GetType() != f.GetType() {
				continue
			}
			for _, m := range f.Metric {
				m.Label = withLabels(m.Label, c)
				into.Metric = append(into.Metric, m)
			}
		}
	}
	all := make([]*dto.MetricFamily, 0, len(merged))
	for _, f := range merged {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
	return all, errs.MaybeUnwrap()
}

// withLabels returns labels with those of the component, unless the metric has labels of these
// names itself. Empty labels are left out, since Prometheus treats them as absent. The slice is a
// copy, because gathered labels are shared with their metric.
func withLabels(labels []*dto.LabelPair, c component) []*dto.LabelPair {
	all := slices.Clone(labels)
	for _, label := range [][2]string{{"contract", c.contract}, {"component", c.role}} {
		name, value := label[0], label[1]
		given := slices.ContainsFunc(all, func(p *dto.LabelPair) bool {
			return p.GetName() == name
		})
		if value != "" && !given {
			all = append(all, &dto.LabelPair{Name: proto.String(name), Value: proto.String(value)})
		}
	}
	slices.SortFunc(all, func(a, b *dto.LabelPair) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
	return all
}
