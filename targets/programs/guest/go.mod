// The first process of a system VM: it serves the harness and supervises the components.
module archproof/programs/guest

go 1.26.0

require golang.org/x/sys v0.49.0
