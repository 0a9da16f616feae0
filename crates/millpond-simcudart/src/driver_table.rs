// The driver's functions that the runtime uses, each with the version that cuGetProcAddress is asked for: the one in which
// the signature below appeared. A text is the name asked for, where one name has two signatures.
driver_functions! {
    cuInit @ 2000 (flags: c_uint);
    cuGetErrorString @ 6000 (error: c_int, out: *mut *const c_char);

    cuDeviceGetCount @ 2000 (out: *mut c_int);
    cuDeviceGetName @ 2000 (out: *mut c_char, length: c_int, device: c_int);
    cuDeviceGetUuid @ 11040 (out: *mut c_void, device: c_int);
    cuDeviceTotalMem @ 3020 (out: *mut usize, device: c_int);
    cuDeviceGetAttribute @ 2000 (out: *mut c_int, attribute: c_int, device: c_int);
    cuDeviceGetPCIBusId @ 4010 (out: *mut c_char, length: c_int, device: c_int);
    cuDeviceGetByPCIBusId @ 4010 (out: *mut c_int, id: *const c_char);
    cuDeviceCanAccessPeer @ 4000 (out: *mut c_int, device: c_int, peer: c_int);
    cuDeviceGetP2PAttribute @ 8000 (out: *mut c_int, attribute: c_int, from: c_int, to: c_int);
    cuDeviceGetDefaultMemPool @ 11020 (out: *mut Pool, device: c_int);
    cuDeviceGetMemPool @ 11020 (out: *mut Pool, device: c_int);
    cuDeviceSetMemPool @ 11020 (device: c_int, pool: Pool);
    cuDeviceGraphMemTrim @ 11040 (device: c_int);
    cuDeviceGetGraphMemAttribute @ 11040 (device: c_int, attribute: c_int, value: *mut c_void);
    cuDeviceSetGraphMemAttribute @ 11040 (device: c_int, attribute: c_int, value: *mut c_void);
    cuDevicePrimaryCtxRetain @ 7000 (out: *mut Context, device: c_int);
    cuDevicePrimaryCtxReset @ 11000 (device: c_int);
    cuDevicePrimaryCtxSetFlags @ 11000 (device: c_int, flags: c_uint);
    cuDevicePrimaryCtxGetState @ 7000 (device: c_int, flags: *mut c_uint, active: *mut c_int);

    cuCtxGetCurrent @ 4000 (out: *mut Context);
    cuCtxSetCurrent @ 4000 (context: Context);
    cuCtxGetDevice @ 2000 (out: *mut c_int);
    cuCtxSynchronize @ 2000 ();
    cuCtxSetLimit @ 3010 (limit: c_int, value: usize);
    cuCtxGetLimit @ 3010 (out: *mut usize, limit: c_int);
    cuCtxGetCacheConfig @ 3020 (out: *mut c_int);
    cuCtxSetCacheConfig @ 3020 (config: c_int);
    cuCtxGetSharedMemConfig @ 4020 (out: *mut c_int);
    cuCtxSetSharedMemConfig @ 4020 (config: c_int);
    cuCtxGetStreamPriorityRange @ 5050 (least: *mut c_int, greatest: *mut c_int);
    cuCtxResetPersistingL2Cache @ 11000 ();
    cuCtxEnablePeerAccess @ 4000 (peer: Context, flags: c_uint);
    cuCtxDisablePeerAccess @ 4000 (peer: Context);

    cuMemAlloc @ 3020 (out: *mut DevicePtr, bytes: usize);
    cuMemAllocPitch @ 3020 (out: *mut DevicePtr, pitch: *mut usize, width: usize, height: usize, element: c_uint);
    cuMemAllocManaged @ 6000 (out: *mut DevicePtr, bytes: usize, flags: c_uint);
    cuMemFree @ 3020 (pointer: DevicePtr);
    cuMemGetInfo @ 3020 (free: *mut usize, total: *mut usize);
    cuMemHostAlloc @ 2020 (out: *mut *mut c_void, bytes: usize, flags: c_uint);
    cuMemFreeHost @ 2000 (pointer: *mut c_void);
    cuMemHostRegister @ 6050 (pointer: *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostUnregister @ 4000 (pointer: *mut c_void);
    cuMemHostGetDevicePointer @ 3020 (out: *mut DevicePtr, pointer: *mut c_void, flags: c_uint);
    cuMemHostGetFlags @ 2030 (out: *mut c_uint, pointer: *mut c_void);
    cuMemAllocAsync @ 11020 (out: *mut DevicePtr, bytes: usize, stream: Stream);
    cuMemFreeAsync @ 11020 (pointer: DevicePtr, stream: Stream);
    cuMemAllocFromPoolAsync @ 11020 (out: *mut DevicePtr, bytes: usize, pool: Pool, stream: Stream);
    cuMemPoolCreate @ 11020 (out: *mut Pool, properties: *const c_void);
    cuMemPoolDestroy @ 11020 (pool: Pool);
    cuMemPoolTrimTo @ 11020 (pool: Pool, keep_bytes: usize);
    cuMemPoolSetAttribute @ 11020 (pool: Pool, attribute: c_int, value: *mut c_void);
    cuMemPoolGetAttribute @ 11020 (pool: Pool, attribute: c_int, value: *mut c_void);
    cuMemPoolSetAccess @ 11020 (pool: Pool, access: *const c_void, count: usize);
    cuMemPoolGetAccess @ 11020 (flags: *mut c_int, pool: Pool, location: *mut Location);
    cuMemPoolExportToShareableHandle @ 11020 (out: *mut c_void, pool: Pool, kind: c_int, flags: c_ulonglong);
    cuMemPoolImportFromShareableHandle @ 11020 (out: *mut Pool, handle: *mut c_void, kind: c_int, flags: c_ulonglong);
    cuMemPoolExportPointer @ 11020 (out: *mut c_void, pointer: DevicePtr);
    cuMemPoolImportPointer @ 11020 (out: *mut DevicePtr, pool: Pool, data: *mut c_void);
    cuMemPrefetchAsync @ 8000 (pointer: DevicePtr, bytes: usize, device: c_int, stream: Stream);
    cuMemPrefetchAsync_v2 = c"cuMemPrefetchAsync" @ 12020
        (pointer: DevicePtr, bytes: usize, location: Location, flags: c_uint, stream: Stream);
    cuMemAdvise @ 8000 (pointer: DevicePtr, bytes: usize, advice: c_int, device: c_int);
    cuMemAdvise_v2 = c"cuMemAdvise" @ 12020 (pointer: DevicePtr, bytes: usize, advice: c_int, location: Location);
    cuMemRangeGetAttribute @ 8000
        (out: *mut c_void, out_bytes: usize, attribute: c_int, pointer: DevicePtr, bytes: usize);
    cuMemRangeGetAttributes @ 8000
        (outs: *mut *mut c_void, sizes: *mut usize, attributes: *mut c_int, count: usize, pointer: DevicePtr, bytes: usize);
    cuPointerGetAttributes @ 7000
        (count: c_uint, attributes: *mut c_int, outs: *mut *mut c_void, pointer: DevicePtr);
    cuIpcGetMemHandle @ 4010 (out: *mut IpcHandle, pointer: DevicePtr);
    cuIpcOpenMemHandle @ 11000 (out: *mut DevicePtr, handle: IpcHandle, flags: c_uint);
    cuIpcCloseMemHandle @ 4010 (pointer: DevicePtr);
    cuIpcGetEventHandle @ 4010 (out: *mut IpcHandle, event: Event);
    cuIpcOpenEventHandle @ 4010 (out: *mut Event, handle: IpcHandle);

    cuMemcpy @ 4000 (to: DevicePtr, from: DevicePtr, bytes: usize);
    cuMemcpyAsync @ 4000 (to: DevicePtr, from: DevicePtr, bytes: usize, stream: Stream);
    cuMemcpyHtoD @ 3020 (to: DevicePtr, from: *const c_void, bytes: usize);
    cuMemcpyHtoDAsync @ 3020 (to: DevicePtr, from: *const c_void, bytes: usize, stream: Stream);
    cuMemcpyDtoH @ 3020 (to: *mut c_void, from: DevicePtr, bytes: usize);
    cuMemcpyDtoHAsync @ 3020 (to: *mut c_void, from: DevicePtr, bytes: usize, stream: Stream);
    cuMemcpyDtoD @ 3020 (to: DevicePtr, from: DevicePtr, bytes: usize);
    cuMemcpyDtoDAsync @ 3020 (to: DevicePtr, from: DevicePtr, bytes: usize, stream: Stream);
    cuMemcpyPeer @ 4000 (to: DevicePtr, to_context: Context, from: DevicePtr, from_context: Context, bytes: usize);
    cuMemcpyPeerAsync @ 4000
        (to: DevicePtr, to_context: Context, from: DevicePtr, from_context: Context, bytes: usize, stream: Stream);
    cuMemcpy2DUnaligned @ 3020 (copy: *const Copy2D);
    cuMemcpy2DAsync @ 3020 (copy: *const Copy2D, stream: Stream);
    cuMemcpyBatchAsync @ 12080
        (to: *mut *mut c_void, from: *mut *mut c_void, sizes: *mut usize, count: usize, attributes: *mut c_void,
         indexes: *mut usize, attribute_count: usize, failed: *mut usize, stream: Stream);
    cuMemsetD8 @ 3020 (pointer: DevicePtr, value: u8, bytes: usize);
    cuMemsetD8Async @ 3020 (pointer: DevicePtr, value: u8, bytes: usize, stream: Stream);
    cuMemsetD2D8 @ 3020 (pointer: DevicePtr, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD2D8Async @ 3020 (pointer: DevicePtr, pitch: usize, value: u8, width: usize, height: usize, stream: Stream);

    cuStreamCreate @ 2000 (out: *mut Stream, flags: c_uint);
    cuStreamCreateWithPriority @ 5050 (out: *mut Stream, flags: c_uint, priority: c_int);
    cuStreamDestroy @ 4000 (stream: Stream);
    cuStreamSynchronize @ 2000 (stream: Stream);
    cuStreamQuery @ 2000 (stream: Stream);
    cuStreamWaitEvent @ 3020 (stream: Stream, event: Event, flags: c_uint);
    cuStreamAddCallback @ 5000 (stream: Stream, callback: StreamCallback, data: *mut c_void, flags: c_uint);
    cuStreamAttachMemAsync @ 6000 (stream: Stream, pointer: DevicePtr, bytes: usize, flags: c_uint);
    cuStreamGetPriority @ 5050 (stream: Stream, out: *mut c_int);
    cuStreamGetFlags @ 5050 (stream: Stream, out: *mut c_uint);
    cuStreamGetId @ 12000 (stream: Stream, out: *mut c_ulonglong);
    cuStreamGetDevice @ 12080 (stream: Stream, out: *mut c_int);
    cuStreamCopyAttributes @ 11000 (to: Stream, from: Stream);
    cuStreamGetAttribute @ 11000 (stream: Stream, attribute: c_int, value: *mut c_void);
    cuStreamSetAttribute @ 11000 (stream: Stream, attribute: c_int, value: *const c_void);
    cuStreamBeginCapture @ 10010 (stream: Stream, mode: c_int);
    cuStreamBeginCaptureToGraph @ 12030
        (stream: Stream, graph: Graph, nodes: *const Handle, edges: *const c_void, count: usize, mode: c_int);
    cuStreamEndCapture @ 10000 (stream: Stream, out: *mut Graph);
    cuStreamIsCapturing @ 10000 (stream: Stream, out: *mut c_int);
    cuStreamGetCaptureInfo @ 11030
        (stream: Stream, status: *mut c_int, id: *mut c_ulonglong, graph: *mut Graph, nodes: *mut *const Handle,
         count: *mut usize);
    cuStreamGetCaptureInfo_v3 = c"cuStreamGetCaptureInfo" @ 12030
        (stream: Stream, status: *mut c_int, id: *mut c_ulonglong, graph: *mut Graph, nodes: *mut *const Handle,
         edges: *mut *const c_void, count: *mut usize);
    cuStreamUpdateCaptureDependencies @ 11030 (stream: Stream, nodes: *mut Handle, count: usize, flags: c_uint);
    cuStreamUpdateCaptureDependencies_v2 = c"cuStreamUpdateCaptureDependencies" @ 12030
        (stream: Stream, nodes: *mut Handle, edges: *const c_void, count: usize, flags: c_uint);
    cuThreadExchangeStreamCaptureMode @ 10010 (mode: *mut c_int);
    cuLaunchHostFunc @ 10000 (stream: Stream, function: HostFunction, data: *mut c_void);

    cuEventCreate @ 2000 (out: *mut Event, flags: c_uint);
    cuEventDestroy @ 4000 (event: Event);
    cuEventRecord @ 2000 (event: Event, stream: Stream);
    cuEventRecordWithFlags @ 11010 (event: Event, stream: Stream, flags: c_uint);
    cuEventQuery @ 2000 (event: Event);
    cuEventSynchronize @ 2000 (event: Event);
    cuEventElapsedTime @ 2000 (out: *mut f32, start: Event, end: Event);

    cuLibraryLoadData @ 12000
        (out: *mut Library, code: *const c_void, jit_options: *mut c_int, jit_values: *mut *mut c_void, jit_count: c_uint,
         options: *mut c_int, values: *mut *mut c_void, count: c_uint);
    cuLibraryLoadFromFile @ 12000
        (out: *mut Library, file: *const c_char, jit_options: *mut c_int, jit_values: *mut *mut c_void, jit_count: c_uint,
         options: *mut c_int, values: *mut *mut c_void, count: c_uint);
    cuLibraryUnload @ 12000 (library: Library);
    cuLibraryGetKernel @ 12000 (out: *mut Function, library: Library, name: *const c_char);
    cuLibraryGetGlobal @ 12000 (out: *mut DevicePtr, bytes: *mut usize, library: Library, name: *const c_char);
    cuLibraryGetManaged @ 12000 (out: *mut DevicePtr, bytes: *mut usize, library: Library, name: *const c_char);
    cuLibraryGetUnifiedFunction @ 12000 (out: *mut *mut c_void, library: Library, name: *const c_char);
    cuLibraryGetKernelCount @ 12040 (out: *mut c_uint, library: Library);
    cuLibraryEnumerateKernels @ 12040 (out: *mut Function, count: c_uint, library: Library);
    cuKernelSetAttribute @ 12000 (attribute: c_int, value: c_int, kernel: Function, device: c_int);
    cuKernelGetName @ 12030 (out: *mut *const c_char, kernel: Function);
    cuKernelGetParamInfo @ 12040 (kernel: Function, index: usize, offset: *mut usize, bytes: *mut usize);
    cuFuncGetAttribute @ 2020 (out: *mut c_int, attribute: c_int, function: Function);
    cuFuncSetAttribute @ 9000 (function: Function, attribute: c_int, value: c_int);
    cuFuncSetCacheConfig @ 3000 (function: Function, config: c_int);
    cuFuncSetSharedMemConfig @ 4020 (function: Function, config: c_int);
    cuLaunchKernel @ 4000
        (function: Function, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
         block_z: c_uint, shared_bytes: c_uint, stream: Stream, parameters: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchKernelEx @ 11060
        (config: *const DriverLaunchConfig, function: Function, parameters: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchCooperativeKernel @ 9000
        (function: Function, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
         block_z: c_uint, shared_bytes: c_uint, stream: Stream, parameters: *mut *mut c_void);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags @ 7000
        (out: *mut c_int, function: Function, block_size: c_int, shared_bytes: usize, flags: c_uint);
    cuOccupancyAvailableDynamicSMemPerBlock @ 10020
        (out: *mut usize, function: Function, blocks: c_int, block_size: c_int);
    cuOccupancyMaxPotentialClusterSize @ 11070
        (out: *mut c_int, function: Function, config: *const DriverLaunchConfig);
    cuOccupancyMaxActiveClusters @ 11070 (out: *mut c_int, function: Function, config: *const DriverLaunchConfig);

    cuGraphCreate @ 10000 (out: *mut Graph, flags: c_uint);
    cuGraphClone @ 10000 (out: *mut Graph, graph: Graph);
    cuGraphDestroy @ 10000 (graph: Graph);
    cuGraphDestroyNode @ 10000 (node: Handle);
    cuGraphGetNodes @ 10000 (graph: Graph, nodes: *mut Handle, count: *mut usize);
    cuGraphGetRootNodes @ 10000 (graph: Graph, nodes: *mut Handle, count: *mut usize);
    cuGraphGetEdges @ 10000 (graph: Graph, from: *mut Handle, to: *mut Handle, count: *mut usize);
    cuGraphNodeGetDependencies @ 10000 (node: Handle, nodes: *mut Handle, count: *mut usize);
    cuGraphNodeGetDependentNodes @ 10000 (node: Handle, nodes: *mut Handle, count: *mut usize);
    cuGraphNodeGetType @ 10000 (node: Handle, out: *mut c_int);
    cuGraphAddDependencies @ 10000 (graph: Graph, from: *const Handle, to: *const Handle, count: usize);
    cuGraphAddEmptyNode @ 10000 (out: *mut Handle, graph: Graph, nodes: *const Handle, count: usize);
    cuGraphAddChildGraphNode @ 10000 (out: *mut Handle, graph: Graph, nodes: *const Handle, count: usize, child: Graph);
    cuGraphAddEventRecordNode @ 11010 (out: *mut Handle, graph: Graph, nodes: *const Handle, count: usize, event: Event);
    cuGraphAddEventWaitNode @ 11010 (out: *mut Handle, graph: Graph, nodes: *const Handle, count: usize, event: Event);
    cuGraphInstantiateWithFlags @ 11040 (out: *mut Handle, graph: Graph, flags: c_ulonglong);
    cuGraphInstantiateWithParams @ 12000 (out: *mut Handle, graph: Graph, parameters: *mut c_void);
    cuGraphExecGetFlags @ 12000 (exec: Handle, out: *mut c_ulonglong);
    cuGraphExecDestroy @ 10000 (exec: Handle);
    cuGraphLaunch @ 10000 (exec: Handle, stream: Stream);
    cuGraphUpload @ 11010 (exec: Handle, stream: Stream);
    cuGraphDebugDotPrint @ 11030 (graph: Graph, path: *const c_char, flags: c_uint);
    cuUserObjectCreate @ 11030
        (out: *mut Handle, pointer: *mut c_void, destroy: HostFunction, count: c_uint, flags: c_uint);
    cuUserObjectRetain @ 11030 (object: Handle, count: c_uint);
    cuUserObjectRelease @ 11030 (object: Handle, count: c_uint);
    cuGraphRetainUserObject @ 11030 (graph: Graph, object: Handle, count: c_uint, flags: c_uint);
    cuGraphReleaseUserObject @ 11030 (graph: Graph, object: Handle, count: c_uint);
}
