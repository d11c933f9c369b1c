// Package ruledoc reads and writes rules as people do: YAML or JSON documents with conditions in CEL, and a flat form.
//
// It knows the document's words, where each of them stands, and how to say what is wrong with it: everything at once,
// each with its place and what to write instead. It watches the files, keeps the last good rules, and runs tests of
// rules. What a rule means is for package headgate, which never learns of YAML or CEL.
package ruledoc
