// Package yamldoc parses YAML and JSON into a tree whose nodes record their position, so that all problems of a file are
// reported at once, each with its line and a remedy.
//
// It does not know what a document means: package ruledoc parses rules with it, and package config the server's
// configuration.
package yamldoc
