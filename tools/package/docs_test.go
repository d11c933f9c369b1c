package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readText returns a file of the repository.
func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// inRepository runs a test where the program runs.
func inRepository(t *testing.T) {
	t.Helper()
	t.Chdir("../..")
}

// TestBuildFlags checks that the documentation and the Dockerfile build with the flags of a release.
func TestBuildFlags(t *testing.T) {
	docs, dockerfile := readText(t, "docs/install.md"), readText(t, "deploy/docker/Dockerfile")
	inRepository(t)
	for name, c := range map[string]struct {
		text    string
		release release
	}{
		"docs/install.md": {docs, release{
			Version: "0.1.0", FullCommit: "$(git rev-parse HEAD)",
			CommitDate: "$(TZ=UTC0 git log -1 --format=%cd --date=format-local:%FT%TZ)",
		}},
		"Dockerfile": {dockerfile, release{Version: "$VERSION", FullCommit: "$COMMIT", CommitDate: "$CREATED"}},
	} {
		recipe, err := c.release.recipe("amd64")
		if err != nil {
			t.Fatal(err)
		}
		b := recipe.Builds[0]
		for _, want := range []string{
			strings.Join(b.Env, " ") + " ", "go build " + strings.Join(b.Flags, " ") + " ", `-ldflags="` + strings.Join(b.Ldflags, " ") + `"`, b.Main,
		} {
			if !strings.Contains(c.text, want) {
				t.Errorf("%s does not have %s", name, want)
			}
		}
	}
}

// packaged returns where the deb installs files of the repository.
func packaged(t *testing.T) map[string]string {
	t.Helper()
	recipe, err := (&release{Version: "0.1.0"}).recipe("amd64")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	contents, _ := recipe.Nfpms[0]["contents"].([]any)
	for _, entry := range contents {
		if file, ok := entry.(map[string]any); ok {
			files[fmt.Sprint(file["src"])] = fmt.Sprint(file["dst"])
		}
	}
	return files
}

// TestDocsPaths checks that the paths of docs/install.md are those of the package.
func TestDocsPaths(t *testing.T) {
	docs := readText(t, "docs/install.md")
	inRepository(t)
	files := packaged(t)
	installed := append(slices.Collect(maps.Values(files)), "/usr/bin/headgate", stateDir)
	rows := regexp.MustCompile("(?m)^\\| `(/[^`]+)` \\|").FindAllStringSubmatch(docs, -1)
	for _, row := range rows {
		if !slices.ContainsFunc(installed, func(dst string) bool { return strings.HasPrefix(dst, row[1]) }) {
			t.Errorf("the package has no %s", row[1])
		}
	}
	installs := regexp.MustCompile(`(?m)^install -D -m \d+ (\S+) (/\S+)$`).FindAllStringSubmatch(docs, -1)
	for _, line := range installs {
		want := "/usr/bin/headgate"
		if line[1] != "headgate" {
			from := "deploy/" + line[1]
			if path.Dir(line[1]) != "systemd" {
				from = "deploy/packaging/" + line[1]
			}
			want = files[from]
		}
		if line[2] != want {
			t.Errorf("%s: the package installs it as %q", line[0], want)
		}
	}
	if len(rows) < 7 || len(installs) < 6 {
		t.Errorf("found only %d paths and %d install lines", len(rows), len(installs))
	}
}

// TestDocsFigures checks the names and figures of docs/install.md.
func TestDocsFigures(t *testing.T) {
	t.Parallel()
	docs, unit := readText(t, "docs/install.md"), readText(t, "deploy/systemd/headgate.service")
	w := workshop{release: &release{ProjectName: "headgate", Os: "linux", Version: "0.1.0"}}
	for _, want := range []string{
		w.fileName("amd64") + ".deb", w.fileName("amd64") + ".tar.gz", w.fileName("amd64") + ".spdx.json", w.imageName(), checksums,
		fmt.Sprintf("uid=%d", imageUser), fmt.Sprintf("at most %.0f", stopTime.Seconds()),
	} {
		if !strings.Contains(docs, want) {
			t.Errorf("docs/install.md does not have %s", want)
		}
	}
	if strings.Contains(docs, "65,536 open files") != strings.Contains(unit, "LimitNOFILE=65536") {
		t.Error("docs/install.md and the unit have different numbers of open files")
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		return // TestUnitExposure says so
	}
	text, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--no-pager", unitFile).Output()
	found := regexp.MustCompile(`headgate.service: ([0-9.]+) `).FindSubmatch(text)
	if err != nil || found == nil || !strings.Contains(docs, string(found[1])+" of\n10") {
		t.Errorf("docs/install.md does not have the exposure of the unit: %q, %v", found, err)
	}
}
