package testenv

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// smallDisk is three times the size of an empty database.
const smallDisk = "size=128m,mode=0700"

// StartSmallPostgres starts a PostgreSQL server on a small disk, for Fill. The disk is a tmpfs. If it cannot be mounted, which needs
// root, the test is skipped.
func StartSmallPostgres(t testing.TB) *Postgres {
	t.Helper()
	p := newPostgres(t)
	mount := exec.Command("mount", "-t", "tmpfs", "-o", smallDisk, "headgate-postgres", p.dir)
	if out, err := mount.CombinedOutput(); err != nil {
		t.Skipf("needs root, to mount a small disk: %v: %s", err, out)
	}
	t.Cleanup(func() {
		p.Kill()
		if out, err := exec.Command("umount", p.dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	p.small = true
	p.own(t)
	p.create(t)
	return p
}

// Fill fills the server's disk. Reads still work. A write that needs a new page fails with SQLSTATE 53100; a small one may still fit
// into an existing page.
func (p *Postgres) Fill(t testing.TB) {
	t.Helper()
	if !p.small {
		t.Fatal("Fill: the server is on a shared disk: use StartSmallPostgres")
	}
	zero, err := os.Open("/dev/zero")
	NoError(t, err)
	defer zero.Close()
	ballast, err := os.Create(p.ballast())
	NoError(t, err)
	defer ballast.Close()
	if _, err := io.Copy(ballast, zero); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("Fill: %v", err)
	}
}

// Free undoes Fill.
func (p *Postgres) Free(t testing.TB) {
	t.Helper()
	NoError(t, os.Remove(p.ballast()))
}

func (p *Postgres) ballast() string { return filepath.Join(p.dir, "ballast") }
