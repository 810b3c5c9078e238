#pragma once

#include <cstddef>
#include <cstdint>

/// DLPack 1.x as specified: https://dmlc.github.io/dlpack. Declares only the types that this module
/// exchanges with other libraries.
namespace tenfold::python::dlpack {

inline constexpr std::uint32_t kMajorVersion = 1;
inline constexpr std::uint32_t kMinorVersion = 0;
inline constexpr std::int32_t kCpu = 1;
/// The bytes must not be written to. torch ignores this flag.
inline constexpr std::uint64_t kReadOnly = 1;

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

struct Device {
  std::int32_t type;
  std::int32_t id;
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
  bool operator==(const DataType&) const = default;
};

struct Array {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; null: row-major
  std::uint64_t byte_offset;
};

/// The struct in a capsule "dltensor".
struct Managed {
  Array array;
  void* context;
  void (*deleter)(Managed*);
};

/// The struct in a capsule "dltensor_versioned".
struct ManagedVersioned {
  Version version;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Array array;
};

/// The struct in the capsule "dlpack_exchange_api", which is `type(x).__dlpack_c_exchange_api__`.
/// Its functions convert an array without creating a capsule for it. They return 0, or -1 with a
/// Python exception set.
struct ExchangeApi {
  Version version;
  ExchangeApi* previous;
  void* allocate;
  int (*from_object)(void* object, ManagedVersioned** out);
  int (*to_object)(ManagedVersioned* stolen, void** out);
  int (*view_of_object)(void* object, Array* out);
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** out);
};

}  // namespace tenfold::python::dlpack
