// A program between a store and what it needs, which a control file disturbs: the connections of an apiserver, or the disk. It
// also serves as an apiserver's webhook, which it disturbs in the same way.
module archproof/programs/faults

go 1.26.0

require golang.org/x/sys v0.49.0
