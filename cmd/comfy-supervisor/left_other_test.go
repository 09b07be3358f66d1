//go:build !linux

package main

// leftOf finds nothing where processes do not show what they have; what they leave in folders is looked at everywhere.
func leftOf([]string) ([]string, error) { return nil, nil }
