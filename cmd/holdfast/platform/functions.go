package platform

// Functions are the entries of all functions of stack.yml.
var Functions = map[string]Handle{}
