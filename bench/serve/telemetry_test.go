package main

import "testing"

// The build without telemetry depends on one line of the server.
func TestBuildUnseen(t *testing.T) { buildUnseen(t) }
