package identity

import "github.com/headgate/headgate/internal/pathreading"

const (
	MaxAttributes = maxAttributes
	MaxPath       = pathreading.Max
)
