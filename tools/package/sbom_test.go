package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestSBOM checks that the document lists the modules of a binary, this one, and that its references are valid.
func TestSBOM(t *testing.T) {
	t.Parallel()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sbom.json")
	if err := (&release{Version: "0.1.0", CommitDate: "2026-01-02T03:04:05Z"}).writeSBOM(binary, file); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		SPDXVersion string `json:"spdxVersion"`
		Packages    []struct {
			SPDXID, Name string
			VersionInfo  string
		}
		Relationships []struct{ SPDXElementID, RelatedSPDXElement, RelationshipType string }
	}
	if err := json.Unmarshal(data, &document); err != nil || document.SPDXVersion != "SPDX-2.3" {
		t.Fatal(document.SPDXVersion, err)
	}
	ids, versions := map[string]bool{"SPDXRef-DOCUMENT": true}, map[string]string{}
	for _, p := range document.Packages {
		if ids[p.SPDXID] || p.VersionInfo == "" {
			t.Errorf("%+v: no version, or its id is not unique", p)
		}
		ids[p.SPDXID], versions[p.Name] = true, p.VersionInfo
	}
	for _, r := range document.Relationships {
		if !ids[r.SPDXElementID] || !ids[r.RelatedSPDXElement] {
			t.Errorf("%+v names an unknown package", r)
		}
	}
	if len(document.Relationships) != len(document.Packages) || versions["github.com/goreleaser/nfpm/v2"] == "" || versions["stdlib"] == "" ||
		versions["github.com/headgate/headgate/tools/package"] != "v0.1.0" {
		t.Errorf("%d relationships, packages %v", len(document.Relationships), versions)
	}
}
