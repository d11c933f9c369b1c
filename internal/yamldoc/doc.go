// Package yamldoc reads YAML, and JSON with it, into a tree whose values know where they stand, so that everything that
// is wrong with a file can be said at once, each with its line and what to write instead.
//
// It knows nothing of what a document means: package ruledoc reads rules with it, and package config the
// server's config.
package yamldoc
