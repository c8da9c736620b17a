// OpenBLAS with its LAPACK, opened when it is first needed. Linked, it would start a thread per core before
// main, and where memory is short (a small ulimit -v) hang, crash or raise a signal there; opened, it keeps
// to the calling thread and failing is an Error.
#pragma once

#include <cblas.h>

namespace signet {

// LAPACK as Fortran exports it; the distribution's OpenBLAS has no C interface to it.
using Dgeev = void(const char* job_left, const char* job_right, const int* n, double* a, const int* lda,
                   double* real, double* imaginary, double* left, const int* ld_left, double* right,
                   const int* ld_right, double* work, const int* work_size, int* info);
// `select` and `flags` are not looked at with sort 'N'.
using Dgees = void(const char* job_vectors, const char* sort, const void* select, const int* n, double* a,
                   const int* lda, int* selected, double* real, double* imaginary, double* vectors,
                   const int* ld_vectors, double* work, const int* work_size, int* flags, int* info);
using Dgesvd = void(const char* job_u, const char* job_v, const int* m, const int* n, double* a,
                    const int* lda, double* s, double* u, const int* ldu, double* v_transposed,
                    const int* ldv, double* work, const int* work_size, int* info);

struct OpenBlas {
  decltype(&cblas_sgemm) sgemm = nullptr;
  decltype(&cblas_dgemm) dgemm = nullptr;
  Dgeev* dgeev = nullptr;
  Dgees* dgees = nullptr;
  Dgesvd* dgesvd = nullptr;
};

// Throws kResource when there is no memory for it, kFailure when it is not installed.
const OpenBlas& openblas();

}  // namespace signet
