//go:build tools

// Package tools names the program that is built as it is.
package tools

import _ "github.com/k3s-io/kine"
