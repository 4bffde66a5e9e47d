// Empty: a package with an assembly file may declare functions without bodies, which //go:linkname connects to
// unexported functions of the modules under test.
