// Replaces files without waiting for the disk.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace muster {

// Replaces a file as one step: readers see the old or the new content, also after this process was
// killed. Not synced, so a crash of the machine may leave an empty file: for state that a reboot
// makes meaningless, and reports that are not worth a wait. WriteFileAtomically (files.h) is
// durable.
Status ReplaceFile(const std::string& path, std::string_view content, int mode = 0600);

}  // namespace muster
