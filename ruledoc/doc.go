// Package ruledoc parses and encodes rules in YAML or JSON documents with conditions in CEL, and in a flat form.
//
// It knows the document's keys and reports all errors of a document at once, each with its position and a remedy. It
// watches rule files, saves the last good rules, and runs rule tests. Package headgate defines what a rule does, and knows
// neither YAML nor CEL.
package ruledoc
