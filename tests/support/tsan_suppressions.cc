// What ThreadSanitizer does not report; linked into every program of the preset tsan.
//
// Debian's gRPC, what it stands on and OpenSSL are compiled without ThreadSanitizer: it does not
// see how their threads wait for each other, and takes each hand-over through them for a race (99
// in a program of 30 calls that has none). Races between our own threads stay visible; those with
// code of ours that a thread of gRPC runs do not.

// ThreadSanitizer calls it at the start of a program.
extern "C" const char* __tsan_default_suppressions() {
  return "race:libabsl_\n"
         "race:libcrypto.so\n"
         "race:libgpr.so\n"
         "race:libgrpc.so\n"
         "race:libgrpc++.so\n"
         "race:libprotobuf.so\n"
         "race:libupb.so\n"
         "race:libssl.so\n";
}
