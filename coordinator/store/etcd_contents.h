// The contents of a store in etcd (store_contents.h).
#pragma once

#include <string>

#include "coordinator/store/etcd_access.h"
#include "coordinator/store/store_contents.h"

namespace muster {

struct EtcdPlace {
  EtcdAccess access;
  std::string prefix = "/muster/";  // of all keys
};

// kNotFound: there is no store; kUnavailable: no member answers.
Result<StoreContents> ReadEtcdStore(const EtcdPlace& place, const RecordsProgress& progress);
// Leads meanwhile: kFailedPrecondition names a coordinator that does. kAlreadyExists: it has
// records. The next leader's epoch is above that of the contents.
Status WriteEtcdStore(const EtcdPlace& place, const StoreContents& contents,
                      IfNotEmpty if_not_empty, const RecordsProgress& progress);
// kFailedPrecondition names the coordinator that leads.
Status CheckNoneLeads(const EtcdPlace& place);

}  // namespace muster
