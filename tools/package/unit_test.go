package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const unitFile = "../../deploy/systemd/headgate.service"

// analyze runs systemd-analyze, which a laptop may lack, but CI may not.
func analyze(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		if os.Getenv("CI") == "" {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	if text, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput(); err != nil || len(text) > 0 && args[0] == "verify" {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestUnitExposure holds the exposure of the unit at 1.5 of 10 or less, as systemd counts it.
func TestUnitExposure(t *testing.T) {
	t.Parallel()
	analyze(t, "security", "--offline=true", "--no-pager", "--threshold=15", unitFile)
}

func TestUnitValid(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable() // stands for the program, which is not installed here
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "headgate.service")
	if err := os.WriteFile(file, []byte(strings.Replace(string(unit), "/usr/bin/headgate", program, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	analyze(t, "verify", "--man=no", file)
}

// TestUnitStopTime checks that systemd waits for longer than the server drains.
func TestUnitStopTime(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	if want := "TimeoutStopSec=15s"; !strings.Contains(string(unit), "\n"+want+"\n") || stopTime.Seconds() >= 15 {
		t.Errorf("no %s, which is longer than %s", want, stopTime)
	}
	help, err := os.ReadFile("../../cmd/headgate/testdata/serve-help.txt")
	if want := "exits within 12 seconds"; err != nil || !strings.Contains(string(help), want) || stopTime.Seconds() != 12 {
		t.Errorf("the help of serve does not say %q, as stopTime does: %v", want, err)
	}
}

func TestSystemCalls(t *testing.T) {
	t.Parallel()
	sets := map[string][]string{"@service": {"read", "@io", "reboot", "nice"}, "@io": {"write"}, "@bad": {"reboot", "@worse"}, "@worse": {"nice"}}
	got := systemCalls(sets, []string{"@service", "~@bad"})
	if slices.Sort(got); !slices.Equal(got, []string{"read", "write"}) {
		t.Error(got)
	}
}
