// A program that stands between a store and what it needs, and disturbs that when it is told to: the connections of an
// apiserver, or the disk.
module archproof/programs/faults

go 1.26.0

require golang.org/x/sys v0.49.0
