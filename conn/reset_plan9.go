package conn

// hangUps are the errors of the system that say that the peer has closed the connection. Here they have no names.
var hangUps []error
