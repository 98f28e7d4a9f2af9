// EtcdAccess: where an etcd is, and what its members are shown.
//
// Plain values; any thread. A member is reached by TLS with a certificate of the coordinator's.
// Plain text goes to loopback alone: who can read it on the way could write the store.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/rpc/etcd_version.h"

namespace muster {

struct EtcdAddress {
  std::string address;  // HOST:PORT
  bool tls = true;
  friend bool operator==(const EtcdAddress&, const EtcdAddress&) = default;
};

struct EtcdAccess {
  std::vector<EtcdAddress> members;
  // Files, PEM; read again when they are replaced. Needed where a member speaks TLS.
  std::string ca;
  std::string certificate;
  std::string key;
  // Empty: etcd takes the common name of the certificate, or has no users.
  std::string user;
  std::string password_file;
};

// "https://a:2379,b,c": members, separated by commas. A scheme holds until the next one; the port
// is 2379 where none is named. kInvalidArgument for http:// outside of loopback.
Result<std::vector<EtcdAddress>> ParseEtcdUrls(const std::string& urls);

// Whether all that the members need is named. kInvalidArgument names what is missing.
Status CheckEtcdAccess(const EtcdAccess& access);

}  // namespace muster
