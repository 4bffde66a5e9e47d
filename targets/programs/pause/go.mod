// The program of a Pod's sandbox: it keeps the Pod's namespaces and reaps what is left to it.
module archproof/programs/pause

go 1.26.0
