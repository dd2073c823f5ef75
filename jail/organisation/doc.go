// Package organisation reads the policy files of an organisation for root.
//
// It promises that directory and files are root's, can be written by nobody else and
// are opened without following links; whatever is wrong with one of them refuses the
// decision it is read for. Nothing is kept: who needs them reads them as they are at
// that moment. Only a directory that is not there means that there is no such layer.
package organisation
