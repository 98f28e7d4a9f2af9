// The few declarations of NVIDIA's management library that NvmlWatch calls, so that neither its
// header nor the library is needed to build. Names and layouts are the library's own and fixed.
#pragma once

namespace muster::worker::nvml {

using Device = void*;
using EventSet = void*;
using Return = int;

inline constexpr Return kSuccess = 0;
inline constexpr Return kTimeout = 10;
inline constexpr unsigned long long kXidCriticalError = 0x8;
inline constexpr unsigned kRecoveryActionField = 230;

struct EventData {
  Device device;
  unsigned long long type;
  unsigned long long data;  // the Xid
  unsigned gpu_instance;
  unsigned compute_instance;
};

union Value {
  double as_double;
  unsigned as_unsigned;
  unsigned long long as_unsigned_long_long;
};

struct FieldValue {
  unsigned field;
  unsigned scope;
  long long timestamp;
  long long latency_microseconds;
  int value_type;
  Return status;
  Value value;
};

using Init = Return (*)();
using Shutdown = Return (*)();
using DeviceCount = Return (*)(unsigned* count);
using DeviceByIndex = Return (*)(unsigned index, Device* device);
using EventSetCreate = Return (*)(EventSet* set);
using EventSetFree = Return (*)(EventSet set);
using EventSetWait = Return (*)(EventSet set, EventData* data, unsigned milliseconds);
using RegisterEvents = Return (*)(Device device, unsigned long long types, EventSet set);
using FieldValues = Return (*)(Device device, int count, FieldValue* values);

}  // namespace muster::worker::nvml
