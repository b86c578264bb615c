// Package catalog lists what is measured: the cases, who takes part in each, and which numbers are shown.
package catalog
