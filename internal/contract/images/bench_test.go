package images_test

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// BenchmarkUpload uploads small pictures from 16 connections, each answered when it is on stable
// storage.
func BenchmarkUpload(b *testing.B) {
	w := inMemory(b, config())
	picture := string(jpegOf(b, 64, 64))
	var mu sync.Mutex
	var elapsed []time.Duration
	b.SetParallelism(8)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			began := time.Now()
			w.Do(b, "POST", filesPath, picture, "Content-Type", "image/jpeg").WantStatus(b, 202)
			d := time.Since(began)
			mu.Lock()
			elapsed = append(elapsed, d)
			mu.Unlock()
		}
	})
	slices.Sort(elapsed)
	b.ReportMetric(float64(elapsed[len(elapsed)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "uploads/s")
}
