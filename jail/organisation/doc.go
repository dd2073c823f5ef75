// Package organisation reads the rules of an organisation: the policy files in
// /etc/agentos/policy.d, their signatures, and the keys that are trusted, which stand
// beside that directory in trusted_keys.
//
// It promises that the directory, the one above it and all files are root's, can be
// written by nobody else and are opened without following links, that every signature
// that is there is right, that there is one where one is required, and that no file has
// expired. Whatever is wrong with one of them refuses the decision it is read for, in a
// sentence. Only a directory that is not there means that there is no such layer.
//
//	policy.d/10-house.toml            a policy; more than one add up, each can only tighten
//	policy.d/10-house.toml.minisig    its signature, in minisign's format; optional until
//	                                  some file says signed = "require", or trusted_keys does
//	trusted_keys                      one public key a line, as minisign writes them
//
// What it does not know: whether a file was there yesterday. Who can write the directory
// can put an older signed file in the place of a newer one; expires bounds for how long.
package organisation
