// The file server of an account: carries out what a worker wants done with the files of the
// account's jobs (owner_files.h). muster-launcher starts it as the account, so that it can do
// nothing which the account could not do itself; it checks no path.
//
// A packet of the worker brings the socket of one call, which is handled on a thread of its own, so
// that a file system which does not answer holds up that call alone.
#pragma once

namespace muster::worker {

// Serves until the worker closes its end, or nothing was asked for some minutes. Ends the process.
[[noreturn]] void ServeOwnerFiles(int fd);

}  // namespace muster::worker
