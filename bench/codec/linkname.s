// That this file is here lets linkname.go declare functions without a body.
