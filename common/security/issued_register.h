// The register of the certificates that an authority has signed: what `muster certs list` shows, by
// which `revoke --serial` finds whose certificate it is, and which says whether any is still good.
//
// A file of one JSON object per line: {"serial", "identity", "issued_ms", "not_after_ms"}. Lines
// are appended and synced, those of many certificates at once; a last line that a crash has cut is
// passed over. Expired ones are dropped once there are many. Free functions; any thread and process
// (the file is locked); they block.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/security/certificate.h"

namespace muster {

// One wait for the disk, however many they are. One whose serial is there already stays as it is.
Status RecordIssued(const std::string& path, std::span<const CertificateInfo> certificates,
                    std::int64_t now_ms);

// In the order they were issued; none where there is no file. kDataLoss names the line.
Result<std::vector<CertificateInfo>> ReadIssued(const std::string& path);

}  // namespace muster
