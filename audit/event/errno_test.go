package event

import "testing"

func TestHost(t *testing.T) {
	for name, want := range map[string]string{"": "", "tcp": "", "udp": "", "132": "", "packet type 3 protocol 768": "", "localhost": "localhost", "a.example": "a.example"} {
		if got := (&Event{Kind: Connect, Name: name}).Host(); got != want {
			t.Errorf("%q: %q", name, got)
		}
	}
	if got := (&Event{Kind: Syscall, Name: "mount"}).Host(); got != "" {
		t.Error(got)
	}
}

func TestErrno(t *testing.T) {
	for n, want := range map[int]string{0: "errno 0", 1: "EPERM", -2: "ENOENT", 11: "EAGAIN", 41: "errno 41", 133: "EHWPOISON", 134: "errno 134"} {
		if got := ErrnoName(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for name, want := range map[string]int{"EPERM": 1, "EWOULDBLOCK": 11, "ENOTSUP": 95, "": 0, "eperm": 0} {
		if got, ok := ErrnoNumber(name); got != want || ok != (want > 0) {
			t.Errorf("%q: %d %t", name, got, ok)
		}
	}
	for n := range len(errnoNames) {
		if back, ok := ErrnoNumber(ErrnoName(n)); ok && back != n || ok != (errnoNames[n] != "") {
			t.Errorf("%d comes back as %d", n, back)
		}
	}
}
