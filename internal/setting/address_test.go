package setting

import "testing"

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1:8080": true, "127.8.9.1:0": true, "[::1]:80": true, "localhost:80": true,
		"LocalHost:80": true, "[::ffff:127.0.0.1]:80": true,
		":8080": false, "0.0.0.0:80": false, "[::]:80": false, "10.0.0.1:80": false,
		"[fe80::1%eth0]:80": false,
		"example.org:80":    false, "localhost.example.org:80": false,
		"127.0.0.1.example.org:80": false, "127.0.0.1": false, "": false,
	} {
		if got := IsLoopback(address); got != want {
			t.Errorf("%s: got %v", address, got)
		}
	}
}
