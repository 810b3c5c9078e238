#include "core/tensor/torch_names.hpp"

#include <gtest/gtest.h>
#include <tenfold/dtype.hpp>

namespace tenfold::test {
namespace {

TEST(TorchNames, DTypesIncludeTensorTypesAndOtherTorchTypes) {
  for (const DType dtype : all_dtypes()) EXPECT_TRUE(is_torch_dtype(to_string(dtype)));
  for (const char* other :
       {"bits1x8", "bits2x4", "bits4x2", "bits8", "bits16", "int1", "int7", "qint8", "qint32",
        "quint8", "quint2x4", "quint4x2", "uint1", "uint7"}) {
    EXPECT_TRUE(is_torch_dtype(other)) << other;
  }
  for (const char* none :
       {"", "float", "int", "uint9", "torch.float32", "per_tensor_affine", "load"}) {
    EXPECT_FALSE(is_torch_dtype(none)) << none;
  }
}

TEST(TorchNames, QSchemesMatchTorch) {
  for (const char* scheme : {"per_tensor_affine", "per_tensor_symmetric", "per_channel_affine",
                             "per_channel_symmetric", "per_channel_affine_float_qparams"}) {
    EXPECT_TRUE(is_torch_qscheme(scheme)) << scheme;
  }
  for (const char* none : {"", "per_tensor", "float32", "per_row_affine"}) {
    EXPECT_FALSE(is_torch_qscheme(none)) << none;
  }
}

TEST(TorchNames, LayoutsMatchTorch) {
  for (const char* layout :
       {"torch.strided", "torch.sparse_coo", "torch.sparse_csr", "torch.sparse_csc",
        "torch.sparse_bsr", "torch.sparse_bsc", "torch._mkldnn", "torch.jagged"}) {
    EXPECT_TRUE(is_torch_layout(layout)) << layout;
  }
  for (const char* none : {"", "strided", "torch.float32", "os.system", "torch.strided "}) {
    EXPECT_FALSE(is_torch_layout(none)) << none;
  }
}

TEST(TorchNames, DevicesAreATypeAndAnIndexUpTo127) {
  for (const char* device : {"cpu", "cuda", "cuda:0", "cuda:127", "mps", "meta", "xpu:3", "npu:1",
                             "privateuseone:0", "my_chip2"}) {
    EXPECT_TRUE(is_torch_device(device)) << device;
  }
  for (const char* none : {"", ":", "cuda:", ":0", "cuda:-1", "cuda:01", "cuda:128", "cuda:0:0",
                           "cuda 0", "CUDA", "os.system", "nonsense:99999999999", "cpu\n"}) {
    EXPECT_FALSE(is_torch_device(none)) << none;
  }
}

}  // namespace
}  // namespace tenfold::test
