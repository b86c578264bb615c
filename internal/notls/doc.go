// Package notls has tests of a build without TLS, for which the tests of other packages cannot be built.
package notls
