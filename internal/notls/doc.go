// Package notls has tests of a build without TLS, in which the tests of most packages do not compile.
package notls
