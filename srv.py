import socket,subprocess,sys,time,resource,os
py=sys.argv[1]; mods=sys.argv[2:]
a,b=socket.socketpair(socket.AF_UNIX,socket.SOCK_SEQPACKET)
t=time.time()
p=subprocess.Popen([py,'-s','-P',os.environ['BOOT'],'--fork-server',str(b.fileno()),*mods],pass_fds=(b.fileno(),),env={'PATH':os.environ['PATH'],'OMP_NUM_THREADS':'1','PYTHONHASHSEED':'0','HOME':'/root','PYTHONPYCACHEPREFIX':'/tmp/h3/fast/pyc'} if 'host' not in py and '.venv' not in py else {'PATH':os.environ['PATH'],'OMP_NUM_THREADS':'1','PYTHONHASHSEED':'0','HOME':'/root'})
b.close(); m=a.recv(1000); w=time.time()-t; a.close(); p.wait()
r=resource.getrusage(resource.RUSAGE_CHILDREN); print(m,'wall %.2f cpu %.2f'%(w,r.ru_utime+r.ru_stime))
