# Made by `ringleader image render` from the recipe tensorflow-1.12-verbs: change that, not this file.
# TensorFlow 1.12 compiled with its gRPC+verbs and gRPC+GDR servers, the wheel handed to a runtime image

FROM nvidia/cuda:9.0-devel-ubuntu16.04 AS build

# The base knows the keys of its time; NVIDIA signs with others since 2022.
RUN rm -f /etc/apt/sources.list.d/cuda.list /etc/apt/sources.list.d/nvidia-ml.list \
 && apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends apt-transport-https \
         ca-certificates curl gnupg \
 && rm -rf /var/lib/apt/lists/* \
 && curl -fsSL -o /tmp/nvidia.pub \
         https://developer.download.nvidia.com/compute/cuda/repos/ubuntu1604/x86_64/3bf863cc.pub \
 && gpg --batch --yes --dearmor -o /usr/share/keyrings/cuda.gpg /tmp/nvidia.pub \
 && printf '%s\n' \
         'deb [signed-by=/usr/share/keyrings/cuda.gpg] https://developer.download.nvidia.com/compute/cuda/repos/ubuntu1604/x86_64 /' \
         > /etc/apt/sources.list.d/cuda.list \
 && curl -fsSL -o /tmp/nvidia.pub \
         https://developer.download.nvidia.com/compute/machine-learning/repos/ubuntu1604/x86_64/7fa2af80.pub \
 && gpg --batch --yes --dearmor -o /usr/share/keyrings/nvidia-ml.gpg /tmp/nvidia.pub \
 && printf '%s\n' \
         'deb [signed-by=/usr/share/keyrings/nvidia-ml.gpg] https://developer.download.nvidia.com/compute/machine-learning/repos/ubuntu1604/x86_64 /' \
         > /etc/apt/sources.list.d/nvidia-ml.list \
 && rm /tmp/nvidia.pub

RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends --allow-downgrades \
         --allow-change-held-packages build-essential ca-certificates curl git ibverbs-utils \
         libcudnn7-dev=7.4.1.5-1+cuda9.0 libcudnn7=7.4.1.5-1+cuda9.0 libibverbs-dev libibverbs1 libmlx4-1 \
         libmlx5-1 libnccl-dev=2.3.7-1+cuda9.0 libnccl2=2.3.7-1+cuda9.0 librdmacm-dev librdmacm1 perftest \
         pkg-config python3-pip python3-setuptools python3.5 python3.5-dev rdmacm-utils rsync unzip zip \
         zlib1g-dev \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/*

# Scripts of that time say python.
RUN ln -sf /usr/bin/python3.5 /usr/bin/python

RUN /usr/bin/python3.5 -m pip install --no-cache-dir --disable-pip-version-check pip==20.3.4 \
         setuptools==44.1.1 wheel==0.37.1

RUN /usr/bin/python3.5 -m pip install --no-cache-dir --disable-pip-version-check six==1.12.0 \
         numpy==1.14.6 mock==2.0.0 pbr==5.1.1

RUN /usr/bin/python3.5 -m pip install --no-cache-dir --disable-pip-version-check --no-deps \
         keras_applications==1.0.6 keras_preprocessing==1.0.5

# Each TensorFlow knows a narrow range of its build tool. bazel 0.15.0.
RUN mkdir -p /opt/build \
 && curl -fsSL --retry 3 -o /opt/build/bazel.sh \
         https://github.com/bazelbuild/bazel/releases/download/0.15.0/bazel-0.15.0-installer-linux-x86_64.sh \
 && printf '%s\n' \
         '7f6748b48a7ea6bdf00b0e1967909ce2181ebe6f377638aa454a7d09a0e3ea7b  /opt/build/bazel.sh' \
         > /opt/build/bazel.sh.sha256 \
 && sha256sum --check --strict /opt/build/bazel.sh.sha256 \
 && bash /opt/build/bazel.sh \
 && rm /opt/build/bazel.sh \
 && printf '%s\n' \
         'startup --batch' \
         'build --spawn_strategy=standalone --genrule_strategy=standalone' \
         > /etc/bazel.bazelrc

# The configuration looks for NCCL where NVIDIA's archive has it, not where its package puts it.
RUN git clone --depth 1 --branch v1.12.0 https://github.com/tensorflow/tensorflow.git /opt/tensorflow \
 && mkdir -p /usr/local/cuda/lib \
 && ln -sf /usr/lib/x86_64-linux-gnu/libnccl.so.2 /usr/local/cuda/lib/libnccl.so.2 \
 && ln -sf /usr/include/nccl.h /usr/local/cuda/include/nccl.h \
 && { if test -f /usr/share/doc/libnccl2/NCCL-SLA.txt.gz; then gunzip -c \
         /usr/share/doc/libnccl2/NCCL-SLA.txt.gz > /usr/local/cuda/NCCL-SLA.txt; fi; }
ENV PYTHON_BIN_PATH="/usr/bin/python3.5" \
    USE_DEFAULT_PYTHON_LIB_PATH="1" \
    TF_NEED_VERBS="1" \
    TF_NEED_GDR="1" \
    TF_NEED_JEMALLOC="1" \
    TF_NEED_CUDA="1" \
    TF_CUDA_VERSION="9.0" \
    CUDA_TOOLKIT_PATH="/usr/local/cuda" \
    TF_CUDA_COMPUTE_CAPABILITIES="3.5,5.2,6.0,6.1,7.0" \
    TF_CUDNN_VERSION="7" \
    CUDNN_INSTALL_PATH="/usr/lib/x86_64-linux-gnu" \
    TF_NCCL_VERSION="2" \
    GCC_HOST_COMPILER_PATH="/usr/bin/gcc" \
    CC_OPT_FLAGS="-mavx" \
    TF_NEED_GCP="0" \
    TF_NEED_HDFS="0" \
    TF_NEED_AWS="0" \
    TF_NEED_S3="0" \
    TF_NEED_KAFKA="0" \
    TF_NEED_IGNITE="0" \
    TF_ENABLE_XLA="0" \
    TF_NEED_OPENCL_SYCL="0" \
    TF_NEED_OPENCL="0" \
    TF_NEED_ROCM="0" \
    TF_NEED_MPI="0" \
    TF_NEED_MKL="0" \
    TF_NEED_NGRAPH="0" \
    TF_NEED_TENSORRT="0" \
    TF_CUDA_CLANG="0" \
    TF_DOWNLOAD_CLANG="0" \
    TF_SET_ANDROID_WORKSPACE="0"

# Programs of the build load libcuda, which only hosts with a driver have: CUDA's stubs stand in.
RUN ldconfig /usr/local/cuda/lib64/stubs \
 && (cd /opt/tensorflow && ./configure && bazel build --config=opt --config=cuda \
         --define=with_verbs_support=true --define=with_gdr_support=true \
         //tensorflow/tools/pip_package:build_pip_package && \
         bazel-bin/tensorflow/tools/pip_package/build_pip_package /opt/built) \
 && test -f /opt/built/tensorflow-1.12.0-cp35-cp35m-linux_x86_64.whl \
 && ldconfig

FROM nvidia/cuda:9.0-runtime-ubuntu16.04

# The base knows the keys of its time; NVIDIA signs with others since 2022.
RUN rm -f /etc/apt/sources.list.d/cuda.list /etc/apt/sources.list.d/nvidia-ml.list \
 && apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends apt-transport-https \
         ca-certificates curl gnupg \
 && rm -rf /var/lib/apt/lists/* \
 && curl -fsSL -o /tmp/nvidia.pub \
         https://developer.download.nvidia.com/compute/cuda/repos/ubuntu1604/x86_64/3bf863cc.pub \
 && gpg --batch --yes --dearmor -o /usr/share/keyrings/cuda.gpg /tmp/nvidia.pub \
 && printf '%s\n' \
         'deb [signed-by=/usr/share/keyrings/cuda.gpg] https://developer.download.nvidia.com/compute/cuda/repos/ubuntu1604/x86_64 /' \
         > /etc/apt/sources.list.d/cuda.list \
 && curl -fsSL -o /tmp/nvidia.pub \
         https://developer.download.nvidia.com/compute/machine-learning/repos/ubuntu1604/x86_64/7fa2af80.pub \
 && gpg --batch --yes --dearmor -o /usr/share/keyrings/nvidia-ml.gpg /tmp/nvidia.pub \
 && printf '%s\n' \
         'deb [signed-by=/usr/share/keyrings/nvidia-ml.gpg] https://developer.download.nvidia.com/compute/machine-learning/repos/ubuntu1604/x86_64 /' \
         > /etc/apt/sources.list.d/nvidia-ml.list \
 && rm /tmp/nvidia.pub

RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends --allow-downgrades \
         --allow-change-held-packages ibverbs-utils libcudnn7=7.4.1.5-1+cuda9.0 libibverbs1 libmlx4-1 \
         libmlx5-1 libnccl2=2.3.7-1+cuda9.0 librdmacm1 perftest python3-pip python3-setuptools python3.5 \
         rdmacm-utils \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/*

# Scripts of that time say python.
RUN ln -sf /usr/bin/python3.5 /usr/bin/python
COPY --from=build /opt/built/tensorflow-1.12.0-cp35-cp35m-linux_x86_64.whl /opt/built/

RUN /usr/bin/python3.5 -m pip install --no-cache-dir --disable-pip-version-check pip==20.3.4 \
         setuptools==44.1.1 wheel==0.37.1

RUN /usr/bin/python3.5 -m pip install --no-cache-dir --disable-pip-version-check absl-py==0.6.1 \
         astor==0.7.1 gast==0.2.0 grpcio==1.16.1 h5py==2.9.0 Keras-Applications==1.0.6 \
         Keras-Preprocessing==1.0.5 Markdown==3.0.1 numpy==1.14.6 protobuf==3.6.1 six==1.12.0 \
         tensorboard==1.12.2 termcolor==1.1.0 Werkzeug==0.14.1

RUN /usr/bin/python3.5 -m pip install --no-cache-dir --disable-pip-version-check \
         /opt/built/tensorflow-1.12.0-cp35-cp35m-linux_x86_64.whl

# What shows that the image works: /usr/local/bin/image-selftest.
RUN printf '%s\n' \
         '#!/bin/sh' \
         '# Imports what this image is made of, says its versions; starts its sshd and two ranks where it can.' \
         '# Exits with 0 if all of it works, with 1 otherwise.' \
         'set -u' \
         'PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin' \
         'work=$(mktemp -d)' \
         'failed=0' \
         'check() {' \
         '    what=$1' \
         '    shift' \
         '    if "$@" > "$work/said" 2>&1; then' \
         '        echo "ok      $what: $(tail -n 1 "$work/said")"' \
         '    else' \
         '        echo "FAILED  $what"' \
         '        cat "$work/said"' \
         '        failed=1' \
         '    fi' \
         '}' \
         '# module MODULE VERSION: it loads, and is what the recipe says; 1.3.0+cu92 is 1.3.0.' \
         'module() {' \
         '    check "$1 $2" /usr/bin/python3.5 -c "import $1 as m; v = m.__version__; print(v); assert v.partition(\"+\")[0] == \"$2\""' \
         '}' \
         '# Without a driver CUDA has a stub of libcuda, in some images: enough to import, not to compute.' \
         'stub=/usr/local/cuda/lib64/stubs/libcuda.so' \
         'if ! ldconfig -p | grep -q "libcuda[.]so[.]1" && test -e "$stub"; then' \
         '    ln -s "$stub" "$work/libcuda.so.1"' \
         '    export LD_LIBRARY_PATH="$work${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"' \
         'fi' \
         'check Python /usr/bin/python3.5 --version' \
         'module tensorflow 1.12.0' \
         'rm -rf "$work"' \
         'exit "$failed"' \
         > /usr/local/bin/image-selftest \
 && chmod 0755 /usr/local/bin/image-selftest
LABEL org.opencontainers.image.title="tensorflow-1.12-verbs" \
      org.opencontainers.image.description="TensorFlow 1.12 compiled with its gRPC+verbs and gRPC+GDR servers, the wheel handed to a runtime image" \
      org.opencontainers.image.version="e24b6d7c51dd" \
      org.opencontainers.image.ref.name="tensorflow-1.12-verbs" \
      org.opencontainers.image.base.name="nvidia/cuda:9.0-runtime-ubuntu16.04" \
      ringleader.recipe="sha256:e24b6d7c51dd5ffcdafb86725db21e3a5a1b2d6a14d18726c7f2dd3547475fa7" \
      ringleader.version="0.1.0"
