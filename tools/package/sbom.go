package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
)

// writeSBOM lists what a binary is made of, as SPDX 2.3: the program, each module that the linker recorded, and Go.
func (r *release) writeSBOM(binary, to string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	root := newSPDXPackage(debug.Module{Path: info.Main.Path, Version: "v" + r.Version})
	root["licenseDeclared"] = "Apache-2.0"
	root["checksums"] = []map[string]string{{"algorithm": "SHA256", "checksumValue": hex.EncodeToString(sum[:])}}
	packages := []map[string]any{root, newSPDXPackage(debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")})}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		packages = append(packages, newSPDXPackage(*module))
	}
	relations := []map[string]string{{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": fmt.Sprint(root["SPDXID"])}}
	for _, p := range packages[1:] {
		relations = append(relations, map[string]string{
			"spdxElementId": fmt.Sprint(root["SPDXID"]), "relationshipType": "DEPENDS_ON", "relatedSpdxElement": fmt.Sprint(p["SPDXID"]),
		})
	}
	text, err := json.MarshalIndent(map[string]any{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "headgate-" + r.Version,
		"documentNamespace": fmt.Sprintf("https://github.com/headgate/headgate/sbom/%x", sum),
		"creationInfo":      map[string]any{"created": r.CommitDate, "creators": []string{"Tool: headgate-package"}},
		"packages":          packages, "relationships": relations,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(to, append(text, '\n'), 0o644)
}

// notInID are the characters that an SPDX id may not have.
var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func newSPDXPackage(m debug.Module) map[string]any {
	return map[string]any{
		"SPDXID": "SPDXRef-" + notInID.ReplaceAllString(m.Path+"-"+m.Version, "-"),
		"name":   m.Path, "versionInfo": m.Version, "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
		"licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
		"externalRefs": []map[string]string{{
			"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
			"referenceLocator": "pkg:golang/" + strings.ToLower(m.Path) + "@" + m.Version,
		}},
	}
}
